# First the keys of the rendered file (deploy/<environment>/<region_alias>/terraform), which is passed whole, then what
# earlier roots put out and what has a default.

variable "_generated" {
  description = "Note of the renderer; not used."
  type        = any
  default     = null
}

variable "account_id" {
  description = "Account to provision."
  type        = string

  validation {
    condition     = can(regex("^[0-9]{12}$", var.account_id))
    error_message = "An account id has 12 digits; ssm:// references are resolved before Terraform runs."
  }
}

variable "region" {
  description = "AWS region."
  type        = string
}

variable "alias" {
  description = "Name of the cluster inside its region deployment."
  type        = string
}

variable "region_alias" {
  description = "Name of the region deployment."
  type        = string
}

variable "environment" {
  description = "Environment; part of every name, because two environments may share a region's name."
  type        = string
}

variable "app_code" {
  description = "Tag for cost reports."
  type        = string
}

variable "service_phase" {
  description = "Tag for cost reports."
  type        = string
}

variable "cost_center" {
  description = "Tag for cost reports."
  type        = string
}

variable "delete" {
  description = "Marked for deletion: the step program destroys instead of applying."
  type        = bool
  default     = false
}

variable "management_cluster_account_ids" {
  description = "Accounts of the region's Management Clusters."
  type        = list(string)
  default     = []
}

variable "vpc_id" {
  description = "Output of network."
  type        = string
}

variable "private_subnet_ids" {
  description = "Output of network."
  type        = list(string)
}

variable "platform_api_port" {
  description = "Where the Platform API's pods listen."
  type        = number
  default     = 8000
}

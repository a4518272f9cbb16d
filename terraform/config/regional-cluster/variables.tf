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

variable "database_security_group_id" {
  description = "Output of database."
  type        = string
}

variable "maestro_db_secret_arn" {
  description = "Output of database."
  type        = string
}

variable "clm_db_secret_arn" {
  description = "Output of database."
  type        = string
}

variable "server_cert_secret_arn" {
  description = "Output of broker."
  type        = string
}

variable "server_config_secret_arn" {
  description = "Output of broker."
  type        = string
}

variable "api_security_group_id" {
  description = "Output of api-gateway."
  type        = string
}

variable "gateway_secret_arn" {
  description = "Output of api-gateway."
  type        = string
}

variable "platform_api_config_secret_arn" {
  description = "Output of api-gateway."
  type        = string
}

variable "platform_api_port" {
  description = "Where the Platform API's pods listen."
  type        = number
  default     = 8000
}

variable "kubernetes_version" {
  description = "EKS version."
  type        = string
  default     = "1.34"
}

variable "image" {
  description = "Image of the bootstrap task."
  type        = string
  default     = "regional/regional:0.1.0"
}

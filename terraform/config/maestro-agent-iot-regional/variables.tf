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

variable "cluster_id" {
  description = "Name of the Management Cluster; also its consumer name at Maestro."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", var.cluster_id))
    error_message = "A cluster id is a DNS label: lower case letters, digits and hyphens."
  }

  # These names would let its certificate pass for a replica of Maestro's server, or for another agent.
  validation {
    condition     = !startswith(var.cluster_id, "maestro-server") && !endswith(var.cluster_id, "-work-agent-client")
    error_message = "A cluster id must not start with maestro-server nor end with -work-agent-client."
  }
}

variable "regional_aws_account_id" {
  description = "Account of the Regional Cluster."
  type        = string
}

variable "hosted_cluster_capacity" {
  description = "How many hosted clusters may be placed on it; registered with the region."
  type        = number
  default     = 100
}

variable "ca_certificate_pem" {
  description = "Output of certificate-authority."
  type        = string
}

variable "certificate_pem" {
  description = "Certificate of the agent, minted by the step program, which hands the key over."
  type        = string
}

variable "former_certificates_pem" {
  description = "Certificates that stay good beside it, until the agent was seen with the newest."
  type        = list(string)
  default     = []
}

variable "cluster_name" {
  description = "EKS cluster of the service account."
  type        = string
}

variable "namespace" {
  description = "Namespace of the service account."
  type        = string
}

variable "service_account" {
  description = "Name of the service account."
  type        = string
}

variable "secret_arns" {
  description = "Secrets it may read."
  type        = list(string)
}

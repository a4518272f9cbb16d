variable "name" {
  description = "Name of the cluster, unique in the account."
  type        = string
}

variable "kubernetes_version" {
  description = "EKS version."
  type        = string
}

variable "private_subnet_ids" {
  description = "Subnets of the control plane's interfaces and of the nodes."
  type        = list(string)
}

variable "admin_role_arns" {
  description = "Roles that get cluster-admin through an access entry."
  type        = list(string)
  default     = []
}

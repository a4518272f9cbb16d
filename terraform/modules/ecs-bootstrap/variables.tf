variable "cluster" {
  description = "rc, or the Management Cluster's id: what people call it."
  type        = string
}

variable "cluster_name" {
  description = "EKS cluster to hand over to GitOps."
  type        = string
}

variable "cluster_arn" {
  description = "ARN of that cluster."
  type        = string
}

variable "cluster_type" {
  description = "regional-cluster or management-cluster: which charts GitOps installs."
  type        = string
}

variable "cluster_security_group_id" {
  description = "Security group of the cluster's API."
  type        = string
}

variable "vpc_id" {
  description = "VPC of the cluster."
  type        = string
}

variable "environment" {
  description = "Environment, first part of the rendered path under deploy/."
  type        = string
}

variable "region_alias" {
  description = "Name of the region deployment, second part of that path."
  type        = string
}

variable "image" {
  description = "Image with regionctl, kubectl, Helm, git and the AWS command line."
  type        = string
}

variable "name" {
  description = "Prefix of every name, unique in the account."
  type        = string
}

variable "vpc_id" {
  description = "VPC of the Regional Cluster."
  type        = string
}

variable "private_subnet_ids" {
  description = "Where the load balancer stands."
  type        = list(string)
}

variable "target_port" {
  description = "Port of the Platform API's pods."
  type        = number
}

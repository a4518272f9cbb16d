variable "service" {
  description = "The service that owns the database; also its database and user name."
  type        = string
}

variable "identifier" {
  description = "Name of the instance, unique in the account."
  type        = string
}

variable "engine_version" {
  description = "PostgreSQL version."
  type        = string
}

variable "instance_class" {
  description = "Size of the instance."
  type        = string
}

variable "multi_az" {
  description = "Keep a standby in a second zone."
  type        = bool
}

variable "deletion_protection" {
  description = "Refuse to delete the instance."
  type        = bool
}

variable "private_subnet_ids" {
  description = "Subnets for the instance."
  type        = list(string)
}

variable "security_group_id" {
  description = "Security group of the instance."
  type        = string
}

variable "password_version" {
  description = "Raise it to draw a new password."
  type        = number
  default     = 1
}

variable "name" {
  description = "Prefix of every name, unique in the account."
  type        = string
}

variable "vpc_cidr" {
  description = "Range of the VPC."
  type        = string
}

variable "availability_zone_count" {
  description = "Zones to spread over; one NAT gateway each."
  type        = number
}

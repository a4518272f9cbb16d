variable "name" {
  description = "Prefix of every name, unique in the account."
  type        = string
}

variable "certificate_pem" {
  description = "Certificate of the agent; its common name is the consumer name."
  type        = string
}

variable "ca_certificate_pem" {
  description = "Authority that signed it, registered with IoT."
  type        = string
}

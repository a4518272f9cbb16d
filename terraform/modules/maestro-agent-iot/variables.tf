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

variable "former_certificates_pem" {
  description = "Certificates that stay good beside it, until the agent was seen with the newest."
  type        = list(string)
  default     = []
}

variable "region_id" {
  description = "The region deployment, unique in the account; topics and client ids carry it."
  type        = string
}

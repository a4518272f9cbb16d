variable "name" {
  description = "Prefix of every name, unique in the account."
  type        = string
}

variable "certificate_pem" {
  description = "Certificate of Maestro's server, common name maestro-server. Its key stays with the step program."
  type        = string
}

variable "ca_certificate_pem" {
  description = "Authority that signed it, registered with IoT."
  type        = string
}

variable "region_id" {
  description = "The region deployment, unique in the account; topics and client ids carry it."
  type        = string
}

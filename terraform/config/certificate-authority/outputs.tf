output "ca_certificate_pem" {
  description = "Certificate of the authority (public)."
  value       = module.private_ca.certificate_pem
}

output "ca_certificate_id" {
  description = "Its id at IoT."
  value       = module.private_ca.iot_ca_certificate_id
}

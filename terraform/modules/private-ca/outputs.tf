output "certificate_pem" {
  value = aws_acmpca_certificate.root.certificate
}

output "iot_ca_certificate_id" {
  value = aws_iot_ca_certificate.this.id
}

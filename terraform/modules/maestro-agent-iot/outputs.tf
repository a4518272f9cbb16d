output "certificate_arn" {
  value = aws_iot_certificate.agent[sha256(var.certificate_pem)].arn
}

output "policy_name" {
  value = aws_iot_policy.agent.name
}

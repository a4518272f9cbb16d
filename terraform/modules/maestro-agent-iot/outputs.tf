output "certificate_arn" {
  value = aws_iot_certificate.agent.arn
}

output "policy_name" {
  value = aws_iot_policy.agent.name
}

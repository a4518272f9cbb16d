output "broker_host" {
  value = "${data.aws_iot_endpoint.data.endpoint_address}:8883"
}

output "certificate_arn" {
  value = aws_iot_certificate.server.arn
}

output "policy_name" {
  value = aws_iot_policy.server.name
}

output "server_cert_secret_arn" {
  value = module.secrets.arns["maestro/server-cert"]
}

output "server_config_secret_arn" {
  value      = module.secrets.arns["maestro/server-config"]
  depends_on = [aws_secretsmanager_secret_version.config]
}

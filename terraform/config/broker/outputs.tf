output "broker_host" {
  description = "host:port for agents."
  value       = module.broker.broker_host
}

output "server_certificate_arn" {
  description = "Registered certificate of Maestro's server."
  value       = module.broker.certificate_arn
}

output "server_policy_name" {
  description = "What that certificate may do."
  value       = module.broker.policy_name
}

output "server_cert_secret_arn" {
  description = "Secret with that certificate and its key."
  value       = module.broker.server_cert_secret_arn
}

output "server_config_secret_arn" {
  description = "Secret with broker and topics for Maestro's server."
  value       = module.broker.server_config_secret_arn
}

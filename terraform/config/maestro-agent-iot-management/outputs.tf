output "consumer_name" {
  description = "Name of the agent at Maestro and in its certificate."
  value       = var.cluster_id
}

output "agent_cert_secret_arn" {
  description = "Secret with the agent's certificate and key."
  value       = module.secrets.arns["maestro/agent-cert"]
}

output "agent_config_secret_arn" {
  description = "Secret with broker, topics and consumer name."
  value       = module.secrets.arns["maestro/agent-config"]
}

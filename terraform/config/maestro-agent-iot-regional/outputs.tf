output "consumer_name" {
  description = "Name of the agent at Maestro and in its certificate."
  value       = var.cluster_id
}

output "certificate_arn" {
  description = "Registered certificate of the agent."
  value       = module.agent.certificate_arn
}

output "policy_name" {
  description = "What that certificate may do."
  value       = module.agent.policy_name
}

output "handover_secret_name" {
  description = "Secret of the regional account in which the step program leaves certificate and key for the other half."
  value       = "maestro/agent-handover/${var.cluster_id}"
}

output "cluster_name" {
  description = "EKS cluster."
  value       = module.cluster.name
}

output "cluster_arn" {
  description = "Its ARN."
  value       = module.cluster.arn
}

output "cluster_endpoint" {
  description = "Its API, reachable inside its VPC only."
  value       = module.cluster.endpoint
}

output "cluster_certificate_authority_data" {
  description = "Authority of its API's certificate, base64."
  value       = module.cluster.certificate_authority_data
}

output "bootstrap_cluster_arn" {
  description = "ECS cluster of the bootstrap task."
  value       = module.bootstrap.cluster_arn
}

output "bootstrap_task_definition_arn" {
  description = "The bootstrap task."
  value       = module.bootstrap.task_definition_arn
}

output "bootstrap_security_group_id" {
  description = "Security group of the bootstrap task."
  value       = module.bootstrap.security_group_id
}

output "bootstrap_log_group_name" {
  description = "Where the bootstrap task logs."
  value       = module.bootstrap.log_group_name
}

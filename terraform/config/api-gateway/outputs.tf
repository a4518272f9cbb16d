output "invoke_url" {
  description = "Where customers' requests go, stage included."
  value       = module.api.invoke_url
}

output "rest_api_id" {
  description = "The API, for the stage that the step program makes."
  value       = module.api.rest_api_id
}

output "deployment_id" {
  description = "What that stage shows."
  value       = module.api.deployment_id
}

output "api_target_group_arn" {
  description = "Where the Regional Cluster registers the Platform API's pods."
  value       = module.api.target_group_arn
}

output "api_security_group_id" {
  description = "Security group of the load balancer in front of them."
  value       = module.api.security_group_id
}

output "gateway_secret_arn" {
  description = "Secret that the gateway and the Platform API share."
  value       = module.secrets.arns["platform-api/gateway-secret"]
}

output "platform_api_config_secret_arn" {
  description = "Secret with the Platform API's settings."
  value       = module.secrets.arns["platform-api/config"]
  depends_on  = [aws_secretsmanager_secret_version.config]
}

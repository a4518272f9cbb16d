output "database_identifiers" {
  description = "RDS instances, in order of their services' names."
  value       = [for service in sort(keys(module.rds)) : module.rds[service].identifier]
}

output "database_security_group_id" {
  description = "Security group of the instances."
  value       = aws_security_group.database.id
}

output "maestro_db_secret_arn" {
  description = "Secret with Maestro's database credentials."
  value       = module.rds["maestro"].credentials_secret_arn
}

output "clm_db_secret_arn" {
  description = "Secret with CLM's database credentials."
  value       = module.rds["clm"].credentials_secret_arn
}

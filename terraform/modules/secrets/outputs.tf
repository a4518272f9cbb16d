output "arns" {
  description = "Name of each secret to its ARN."
  value       = { for name, secret in aws_secretsmanager_secret.this : name => secret.arn }
}

output "identifier" {
  value = aws_db_instance.this.identifier
}

output "credentials_secret_arn" {
  value = aws_secretsmanager_secret.credentials.arn
}

# One PostgreSQL instance for one service. The password is drawn by Secrets Manager and handed on through ephemeral
# values and write-only arguments: it is in the secrets and in the database, never in the state.

ephemeral "aws_secretsmanager_random_password" "master" {
  password_length     = 32
  exclude_punctuation = true
}

# Drawn once and kept, so that an apply which stopped half way sets the same password again.
resource "aws_secretsmanager_secret" "password" {
  name        = "${var.service}/db-password"
  description = "Password of ${var.service}'s database user"
}

resource "aws_secretsmanager_secret_version" "password" {
  secret_id                = aws_secretsmanager_secret.password.id
  secret_string_wo         = ephemeral.aws_secretsmanager_random_password.master.random_password
  secret_string_wo_version = var.password_version
}

ephemeral "aws_secretsmanager_secret_version" "password" {
  secret_id  = aws_secretsmanager_secret_version.password.secret_id
  version_id = aws_secretsmanager_secret_version.password.version_id
}

resource "aws_kms_key" "this" {
  description             = "Storage of ${var.identifier}"
  enable_key_rotation     = true
  deletion_window_in_days = 30
}

resource "aws_db_subnet_group" "this" {
  name       = var.identifier
  subnet_ids = var.private_subnet_ids
}

resource "aws_db_parameter_group" "this" {
  name   = var.identifier
  family = "postgres${split(".", var.engine_version)[0]}"
  parameter {
    name  = "rds.force_ssl"
    value = "1"
  }
}

resource "aws_db_instance" "this" {
  identifier                      = var.identifier
  engine                          = "postgres"
  engine_version                  = var.engine_version
  instance_class                  = var.instance_class
  allocated_storage               = 20
  storage_type                    = "gp3"
  storage_encrypted               = true
  kms_key_id                      = aws_kms_key.this.arn
  db_name                         = var.service
  username                        = var.service
  password_wo                     = ephemeral.aws_secretsmanager_secret_version.password.secret_string
  password_wo_version             = var.password_version
  port                            = 5432
  db_subnet_group_name            = aws_db_subnet_group.this.name
  parameter_group_name            = aws_db_parameter_group.this.name
  vpc_security_group_ids          = [var.security_group_id]
  publicly_accessible             = false
  multi_az                        = var.multi_az
  backup_retention_period         = 7
  copy_tags_to_snapshot           = true
  deletion_protection             = var.deletion_protection
  skip_final_snapshot             = false
  final_snapshot_identifier       = "${var.identifier}-final"
  enabled_cloudwatch_logs_exports = ["postgresql"]
}

# What the service mounts.
resource "aws_secretsmanager_secret" "credentials" {
  name        = "${var.service}/db-credentials"
  description = "Where ${var.service}'s database is and how to log in"
}

resource "aws_secretsmanager_secret_version" "credentials" {
  secret_id = aws_secretsmanager_secret.credentials.id
  secret_string_wo = jsonencode({
    host     = aws_db_instance.this.address
    port     = aws_db_instance.this.port
    dbname   = var.service
    username = var.service
    password = ephemeral.aws_secretsmanager_secret_version.password.secret_string
  })
  secret_string_wo_version = var.password_version
}

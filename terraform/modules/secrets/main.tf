# Places for secrets, without values. Whatever holds a private key is written by the step program after the apply, so
# that no key ever passes through a plan or a state.

resource "aws_kms_key" "this" {
  description             = "Secrets of ${var.name}"
  enable_key_rotation     = true
  deletion_window_in_days = 30
}

resource "aws_kms_alias" "this" {
  name          = "alias/${var.name}"
  target_key_id = aws_kms_key.this.key_id
}

resource "aws_secretsmanager_secret" "this" {
  for_each    = var.secrets
  name        = each.key
  description = each.value
  kms_key_id  = aws_kms_key.this.arn
}

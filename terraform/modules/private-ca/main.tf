# The region's authority for broker certificates. Its key is made inside ACM Private CA and cannot leave it; IoT knows the
# authority, but registers no certificate by itself: each one is registered by name with a policy of its own.

data "aws_partition" "current" {}

resource "aws_acmpca_certificate_authority" "this" {
  type                            = "ROOT"
  permanent_deletion_time_in_days = 30

  certificate_authority_configuration {
    key_algorithm     = "EC_prime256v1"
    signing_algorithm = "SHA256WITHECDSA"
    subject {
      common_name = var.common_name
    }
  }
}

resource "aws_acmpca_certificate" "root" {
  certificate_authority_arn   = aws_acmpca_certificate_authority.this.arn
  certificate_signing_request = aws_acmpca_certificate_authority.this.certificate_signing_request
  signing_algorithm           = "SHA256WITHECDSA"
  template_arn                = "arn:${data.aws_partition.current.partition}:acm-pca:::template/RootCACertificate/V1"
  validity {
    type  = "YEARS"
    value = 10
  }
}

resource "aws_acmpca_certificate_authority_certificate" "root" {
  certificate_authority_arn = aws_acmpca_certificate_authority.this.arn
  certificate               = aws_acmpca_certificate.root.certificate
  certificate_chain         = aws_acmpca_certificate.root.certificate_chain
}

resource "aws_iot_ca_certificate" "this" {
  active                  = true
  allow_auto_registration = false
  certificate_mode        = "SNI_ONLY"
  ca_certificate_pem      = aws_acmpca_certificate.root.certificate
}

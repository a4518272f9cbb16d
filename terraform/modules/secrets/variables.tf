variable "name" {
  description = "Name of the encryption key's alias, unique in the account."
  type        = string
}

variable "secrets" {
  description = "Name of each secret to its description."
  type        = map(string)
}

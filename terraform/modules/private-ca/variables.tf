variable "common_name" {
  description = "Name of the authority."
  type        = string
}

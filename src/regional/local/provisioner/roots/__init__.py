"""One module per Terraform root: `Inputs` are its variables.tf, `Outputs` its outputs.tf, `apply` makes it so here."""

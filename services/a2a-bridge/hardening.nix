# What the bridge may not do. docs/explanation/hardening.md says why lines are missing.
import ../strict.nix

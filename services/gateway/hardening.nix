# What the gateway may not do. docs/explanation/hardening.md says why.
import ../strict.nix
// {
  IPAddressAllow = "localhost";
  IPAddressDeny = "any";
  ProcSubset = "pid";
}

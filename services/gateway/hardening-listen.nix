# What the proxy in front of the gateway's socket may not do: systemd gives it what it listens to,
# it connects to one socket of this host, and needs no network of its own.
# docs/explanation/hardening.md says why.
import ../strict.nix
// {
  PrivateNetwork = true;
  ProcSubset = "pid";
  RestrictAddressFamilies = [ "AF_UNIX" ];
}

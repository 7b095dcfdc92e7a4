# What a TAMQ may not do, although it is a person's process and reaches that person's terminals.
# docs/explanation/hardening.md says why each line is as it is, and why lines are missing.
import ../hardening.nix
// {
  CapabilityBoundingSet = "";
  IPAddressDeny = "any";
  LimitCORE = 0;
  MemoryDenyWriteExecute = true;
  PrivateNetwork = true;
  ProtectControlGroups = true;
  ProtectHome = "read-only";
  ProtectSystem = "strict";
  RestrictAddressFamilies = [ "AF_UNIX" ];
  RestrictNamespaces = true;
  SystemCallErrorNumber = "EPERM";
  SystemCallFilter = [
    "@system-service"
    "~@privileged"
  ];
}

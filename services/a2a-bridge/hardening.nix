# What the bridge may not do. docs/explanation/hardening.md says why lines are missing.
import ../hardening.nix
// {
  CapabilityBoundingSet = "";
  LimitCORE = 0;
  MemoryDenyWriteExecute = true;
  PrivateTmp = true;
  ProtectControlGroups = true;
  ProtectHome = true;
  ProtectProc = "invisible";
  ProtectSystem = "strict";
  RemoveIPC = true;
  RestrictNamespaces = true;
  SystemCallErrorNumber = "EPERM";
  SystemCallFilter = [
    "@system-service"
    "~@privileged @resources"
  ];
}

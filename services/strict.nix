# What no service of ours may do that starts nothing: what it adds says what it needs less, or more.
# docs/explanation/hardening.md says why.
import ./hardening.nix
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

# What the gateway may not do. docs/explanation/hardening.md says why.
import ../hardening.nix
// {
  CapabilityBoundingSet = "";
  IPAddressAllow = "localhost";
  IPAddressDeny = "any";
  LimitCORE = 0;
  MemoryDenyWriteExecute = true;
  PrivateTmp = true;
  ProcSubset = "pid";
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

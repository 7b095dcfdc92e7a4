# What the units of an agent may not do. docs/explanation/hardening.md says why each line of
# the runner's profile is as it is.
let
  everywhere = import ../hardening.nix // {
    PrivateTmp = true;
    ProtectProc = "invisible";
    SystemCallErrorNumber = "EPERM";
  };
in
{
  daemon = everywhere // {
    CapabilityBoundingSet = "";
    IPAddressAllow = "localhost";
    IPAddressDeny = "any";
    LimitCORE = 0;
    MemoryDenyWriteExecute = true;
    ProcSubset = "pid";
    ProtectControlGroups = true;
    ProtectHome = true;
    ProtectSystem = "strict";
    RemoveIPC = true;
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_UNIX"
    ];
    RestrictNamespaces = true;
    SystemCallFilter = [
      "@system-service"
      "~@privileged @resources"
    ];
  };

  # Its processes are the agent's work, which may be anything that the agent's user may do.
  runner = everywhere // {
    CapabilityBoundingSet = "";
    Delegate = true;
    LimitCORE = 0;
    OOMPolicy = "continue";
    ProtectSystem = "full";
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_INET6"
      "AF_NETLINK"
      "AF_UNIX"
    ];
    SystemCallFilter = [
      "@system-service"
      "@mount"
      "@pkey"
      "chroot"
      # "@sandbox" of systemd 255 and later, by name
      "landlock_add_rule"
      "landlock_create_ruleset"
      "landlock_restrict_self"
      "seccomp"
    ];
  };
}

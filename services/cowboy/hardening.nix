# What the units of an agent may not do. docs/explanation/hardening.md says why each line of
# the runner's profile is as it is.
{
  daemon = import ../strict.nix // {
    IPAddressAllow = "localhost";
    IPAddressDeny = "any";
    ProcSubset = "pid";
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_UNIX"
    ];
  };

  # Its processes are the agent's work, which may be anything that the agent's user may do.
  runner = import ../hardening.nix // {
    CapabilityBoundingSet = "";
    Delegate = true;
    LimitCORE = 0;
    OOMPolicy = "continue";
    PrivateTmp = true;
    ProtectProc = "invisible";
    ProtectSystem = "full";
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_INET6"
      "AF_NETLINK"
      "AF_UNIX"
    ];
    SystemCallErrorNumber = "EPERM";
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

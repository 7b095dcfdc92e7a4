# A host whose names would meet if a separator could be part of one: agent "a-b" with source "c"
# beside agent "a" with source "b-c", and agents that are called as our own identities are.
{
  services.cowboy = {
    enable = true;
    agents = {
      a.sources.b-c.runner.kind = "echo";
      a-b.sources.c.runner.kind = "echo";
      operator.sources.a.runner.kind = "echo";
      source.sources.a.runner.kind = "echo";
    };
  };
}

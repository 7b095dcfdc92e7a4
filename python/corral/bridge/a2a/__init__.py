"""The bridge's side of A2A: JSON-RPC over HTTP, protocol versions 1.0 and 0.3.

Order of dependency: `reading` (what agents answer), `wire` (what they are asked), `verdict`
(which refusals are definite) and `card` are pure; `target` says where an agent is; `transport`
knows whether bytes have left; `agents` puts them together and is what the worker uses;
`examination` is for `a2a-bridge card` and `doctor`.
"""

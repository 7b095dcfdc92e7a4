"""What every service of Corral stands on. Imports nothing by itself: take the module you need.

Order of dependency, each may import those before it: `errors`, `ids`, `crashpoints`,
`clock`, `backoff`, `notify`, `logs`, `metrics`, `settings`, `cli`, `sqlfiles`,
`database`, `reader`, `group`, `sqlite`. Services take the last five by way of `sqlite`. Nothing
here knows a service.
"""

package pluginv1

// What router and plugin agree on before they speak gRPC, in the terms of go-plugin. Everything is
// passed in environment variables.
const (
	// Version is the version of the protocol.
	Version = 1
	// CookieKey and CookieValue tell a plugin that it was started by a router. They protect
	// nothing.
	CookieKey   = "DELTAROUTER_PLUGIN"
	CookieValue = "b1f29d52-handler"
	// MaxMessageKey names how many bytes a request has at most: gRPC's default of 4 MiB is too few.
	MaxMessageKey = "DELTAROUTER_MAX_MESSAGE"
	// MaxCallsKey names how many calls of Handle there are at most at the same time. A server with
	// a fixed number of threads needs one more, for its health.
	MaxCallsKey = "DELTAROUTER_MAX_CALLS"
)

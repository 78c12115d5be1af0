// Package rules contains the rules about time of a route as state machines without clocks and
// locks; callers pass the time. A route (see internal/pipeline) owns them. It changes them under
// its lock together with its backlog, and takes their dirty records for the checkpoint at the same
// moment.
//
//	delta ──filter──► Limit ──► delta queue
package rules

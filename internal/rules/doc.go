// Package rules has the rules about time of a route, as state machines without clocks and locks:
// what time it is they are told. Their owner is the route (see internal/pipeline), under whose lock
// they change together with the backlog of the route, and which hands over what they know for the
// checkpoint, so that both belong to one moment.
//
//	delta ──filter──► Limit ──► delta queue
package rules

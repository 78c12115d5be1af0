// Package reflector runs client-go's Reflector for one watch and speaks to the API server for it.
//
// A [Reflector] waits until discovery has the resource, then runs a client-go Reflector over a
// ListerWatcher that decodes the wire itself. What comes in goes to the [Sink]. The [Plan] says
// whether the next client-go Reflector resumes from the persist.State or begins with a list. A
// prober asks now and then whether the API server has gone back in time or is another cluster's.
// [Health] is how the watch gets on with the API server, and [Inquiry] asks it single questions.
package reflector

// Package reflector runs client-go's Reflector for one watch and makes its requests to the API
// server.
//
// A [Reflector] waits until discovery has the resource, and then runs a client-go Reflector over a
// ListerWatcher that decodes the response itself. Objects go to the [Sink]. The [Plan] decides
// whether the next client-go Reflector resumes from the persist.State or starts with a list. A
// prober checks at intervals whether the API server has gone back in time or is another cluster.
// [Health] records the state of the connection, and [Inquiry] makes requests about single objects.
package reflector

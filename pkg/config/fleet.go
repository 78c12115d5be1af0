package config

import (
	"slices"
	"strings"
	"time"
)

// Fleet configures the processes that share the work of one configuration.
type Fleet struct {
	Node     Node          `yaml:",self"`
	Name     string        `yaml:"name,required" doc:"Name of the fleet, part of the names of its streams, buckets and Lease. Fleets of one NATS account need different names."`
	NATS     NATS          `yaml:"nats,required" doc:"The NATS servers with JetStream that the fleet stores its streams in."`
	Replicas int           `yaml:"replicas" default:"3" min:"1" max:"5" doc:"Number of NATS servers that store each stream: 1, 3 or 5. With 1 the loss of one server stops the workers and the replication to the standby."`
	Lease    time.Duration `yaml:"lease" default:"15s" min:"6s" max:"5m" doc:"Time after which a standby takes over from a leader that does not renew its Lease."`
	Keys     fleetKeys     `yaml:"keys" doc:"Keys with which the processes of the fleet sign what they store in NATS. Absent: whoever has the credentials of a worker in NATS can do what the leader can. Read at the start."`
	Wait     bool          `yaml:"wait" doc:"Deliveries that wait for a cut also wait, for at most 1s, until NATS has stored the cut. Otherwise a crash of the leader may lose the last cuts: their deltas are delivered again, and the kv, dead letters and limits of their time are lost."`
}

// fleetKeys are the keys of a fleet, texts of at least 32 bytes.
type fleetKeys struct {
	Members Secret       `yaml:"members" doc:"Key of the leader and the standbys, at least 32 bytes, for the lead records, the frames and the snapshots of the state file. Workers do not need it, and must not have it."`
	Workers Secret       `yaml:"workers" doc:"Key of the leader, the standbys and the workers, at least 32 bytes and another one than members, for the deltas and the dead letters of workers."`
	Accept  acceptedKeys `yaml:"accept" doc:"What is accepted beside, to change keys without an interruption."`
}

// acceptedKeys are further keys with which messages are accepted.
type acceptedKeys struct {
	Node     Node   `yaml:",self"`
	Workers  Secret `yaml:"workers" doc:"Second key of all processes, which verifies and does not sign."`
	Members  Secret `yaml:"members" doc:"Second key of the leader and the standbys, which verifies and does not sign."`
	Unsigned bool   `yaml:"unsigned" doc:"Accepts messages without a signature: until all processes have keys, and not longer."`
}

// NATS is a connection to the servers of one NATS cluster.
type NATS struct {
	Node        Node            `yaml:",self"`
	Servers     []string        `yaml:"servers,required" min:"1" doc:"URLs of the servers of one cluster: nats://host:4222, or tls://host:4222."`
	Credentials NATSCredentials `yaml:"credentials" doc:"The credentials of the router: one of creds, nkey, token, and user with password."`
	TLS         TLS             `yaml:"tls" doc:"TLS settings: the certificate authorities of the server, and a client certificate."`
}

// NATSCredentials are the credentials of a connection to NATS: one of creds, nkey, token, and user
// with password.
type NATSCredentials struct {
	Creds    Secret `yaml:"creds" doc:"The content of a .creds file, as {file: router.creds}."`
	NKey     Secret `yaml:"nkey" doc:"The seed of an NKey (SU…)."`
	Token    Secret `yaml:"token" doc:"A token."`
	User     string `yaml:"user" doc:"The user. Needs password."`
	Password Secret `yaml:"password" doc:"The password of user."`
}

// Workers divides the deltas of a route among the workers of the fleet.
type Workers struct {
	Node       Node `yaml:",self"`
	Partitions int  `yaml:"partitions" default:"8" min:"1" max:"1024" doc:"Number of parts of the deltas, by their key. One worker at a time handles a part, so more workers than parts have no effect."`
	Pending    int  `yaml:"pending" default:"256" min:"16" max:"10000" doc:"Maximum number of unacknowledged deltas of a part. After the death of a worker at most these are delivered again."`
}

// maxFleet is the maximum length of the name of a fleet: names of streams and of the Lease contain
// it.
const maxFleet = 40

// Validate checks the rules that tags cannot express. It reads no files.
func (f *Fleet) Validate(n Node) (problems Problems) {
	if f.Name != "" && (len(f.Name) > maxFleet || !dnsLabel.MatchString(f.Name)) {
		problems = append(problems, n.At("name").Problemf("%q is not a valid name of a fleet: use small letters, digits and -, at most %d", f.Name, maxFleet))
	}
	if f.Replicas%2 == 0 {
		problems = append(problems, n.At("replicas").Problemf("must be 1, 3 or 5, not %d: an even number of servers tolerates no more failures than one server less", f.Replicas))
	}
	return problems
}

// Validate checks that keys are complete.
func (k *fleetKeys) Validate(n Node) (problems Problems) {
	if k.Members.IsZero() && (!k.Accept.Members.IsZero() || k.Accept.Unsigned) {
		problems = append(problems, n.At("accept").Problemf("needs the key that signs: set members"))
	}
	if k.Workers.IsZero() && !k.Accept.Workers.IsZero() {
		problems = append(problems, n.At("accept").Problemf("needs the key that signs: set workers"))
	}
	return problems
}

// Validate checks that there is at most one way to authenticate.
func (c *NATSCredentials) Validate(n Node) Problems {
	var ways []string
	for name, given := range map[string]bool{
		"creds": !c.Creds.IsZero(), "nkey": !c.NKey.IsZero(), "token": !c.Token.IsZero(), "user": c.User != "" || !c.Password.IsZero(),
	} {
		if given {
			ways = append(ways, name)
		}
	}
	slices.Sort(ways)
	switch {
	case len(ways) > 1:
		return Problems{n.Problemf("has %s: keep one of them", strings.Join(ways, " and "))}
	case (c.User == "") != c.Password.IsZero():
		return Problems{n.Problemf("needs both user and password")}
	}
	return nil
}

// checkFleet checks the fleet and the routes with workers. The routes are linked.
func (c *Config) checkFleet() (problems Problems) {
	if c.Fleet != nil && c.main == nil && c.State.Dir == "" {
		problems = append(problems, c.Fleet.Node.Problemf("needs a state folder, which the standby has a copy of: set state.dir"))
	}
	for _, r := range c.Routes {
		if r != nil && r.Workers != nil {
			problems = append(problems, c.checkWorkers(r)...)
		}
	}
	return problems
}

// TrustedWorkers warns that the workers of a fleet have the power of the leader, because there are
// no keys.
func (c *Config) TrustedWorkers() Problems {
	if c.Fleet == nil || !c.Fleet.Keys.Members.IsZero() && !c.Fleet.Keys.Workers.IsZero() && !c.Fleet.Keys.Accept.Unsigned {
		return nil
	}
	for _, r := range c.Routes {
		if r == nil || r.Workers == nil {
			continue
		}
		w := c.Fleet.Node.Problemf("without keys, whoever has the credentials of a worker in NATS can replace the state of the leader, and forge deltas: set keys.members and keys.workers")
		if c.Fleet.Keys.Accept.Unsigned {
			w = c.Fleet.Keys.Accept.Node.Problemf("unsigned: whoever has the credentials of a worker in NATS can replace the state of the leader: remove it as soon as all processes have keys")
		}
		w.Warning = true
		return Problems{w}
	}
	return nil
}

// checkWorkers checks that the deltas of a route can be handled outside of the leader.
func (c *Config) checkWorkers(r *Route) (problems Problems) {
	at := r.Node.At("workers")
	report := func(n Node, format string, args ...any) { problems = append(problems, n.Problemf(format, args...)) }
	if c.main == nil && c.Fleet == nil { // of a fragment, see checkPartitions
		report(at, "needs a fleet, whose NATS servers bring the deltas to the workers: add fleet, or remove this key")
	}
	if r.Batch.By != nil {
		report(at, "the leader collects a group (batch.by) and handles it in one call: remove workers; or make one event of the group with emit, and give workers to a route behind this one ({route: NAME} under to)")
	}
	if r.OnFailure == OnFailurePause {
		report(at, "a worker cannot pause the route for the others: set onFailure to deadLetter or drop, or remove workers")
	}
	for i := range r.To {
		if r.To[i].Route != "" {
			report(r.To[i].Node, "a route with workers delivers to sinks only: name a sink; or remove workers here, and give them to the last route of the chain")
		}
	}
	for _, name := range r.From {
		if s := c.Sources[name]; s != nil && s.Secrets {
			report(at, "source %q has the data of Secrets, which does not leave the leader: remove workers, or secrets: true from the source", name)
		}
	}
	return problems
}

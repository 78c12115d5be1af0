package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// Role is the role of a process in its fleet.
type Role string

// The roles.
const (
	Member Role = "member" // a leader or a standby
	Worker Role = "worker" // router worker
)

// permission is a subject that a process publishes or subscribes to.
type permission struct {
	subject   string
	subscribe bool
}

// The requests to JetStream about one stream, as the ends of subjects.
var (
	look    = []string{"STREAM.INFO.%s"}
	create  = []string{"STREAM.INFO.%s", "STREAM.CREATE.%s"}
	read    = []string{"STREAM.MSG.GET.%s", "DIRECT.GET.%s", "DIRECT.GET.%s.>"}
	consume = []string{"CONSUMER.CREATE.%s.>", "CONSUMER.DELETE.%s.*", "CONSUMER.INFO.%s.*", "CONSUMER.MSG.NEXT.%s.*"}
	list    = []string{"CONSUMER.LIST.%s", "CONSUMER.NAMES.%s"}
	purge   = []string{"STREAM.PURGE.%s"}
	remove  = []string{"STREAM.MSG.DELETE.%s"}
	// watch is a watch of a bucket: a consumer that the server pushes to, with flow control.
	watch = []string{"CONSUMER.CREATE.%s.>", "CONSUMER.DELETE.%s.*", "CONSUMER.INFO.%s.*"}
)

// grants collects permissions.
type grants struct{ all []permission }

func (g *grants) publish(subjects ...string) {
	for _, s := range subjects {
		g.all = append(g.all, permission{subject: s})
	}
}

// api permits requests about a stream.
func (g *grants) api(stream string, requests ...[]string) {
	for _, r := range slices.Concat(requests...) {
		g.publish("$JS.API." + fmt.Sprintf(r, stream))
	}
}

// pushed permits the answers to the flow control of a stream.
func (g *grants) pushed(stream string) { g.publish("$JS.FC." + stream + ".>") }

// permissions returns the permissions of a role, without repetitions.
func (n Names) permissions(role Role) []permission {
	var g grants
	g.publish("$JS.API.INFO")
	if role == Member {
		n.member(&g)
	} else {
		n.worker(&g)
	}
	for _, bucket := range []string{n.Owners(), n.Members()} {
		g.api("KV_"+bucket, look, read, watch)
		g.publish("$KV." + bucket + ".>")
		g.pushed("KV_" + bucket)
	}
	g.all = append(g.all, permission{n.Inbox(role) + ".>", true})
	slices.SortFunc(g.all, func(a, b permission) int { return strings.Compare(a.subject, b.subject) })
	return slices.Compact(g.all)
}

func (n Names) member(g *grants) {
	values, owners, members, snapshots := "KV_"+n.Values(), "KV_"+n.Owners(), "KV_"+n.Members(), "OBJ_"+n.Snapshots()
	for _, stream := range []string{n.Work(), n.Cuts(), n.DeadLetters(), values, owners, members, snapshots} {
		g.api(stream, create)
	}
	g.api(n.Cuts(), read, consume, purge)
	g.api(n.Work(), read, list)
	g.publish(n.subject("c", ">"), n.subject("w", ">"))
	g.api(n.DeadLetters(), read, consume, remove, purge)
	g.api(snapshots, read, consume, purge)
	g.publish("$O."+n.Snapshots()+".C.>", "$O."+n.Snapshots()+".M.>")
	g.pushed(snapshots)
	g.publish(n.SnapshotRequest())
	// the answers to look-ups
	g.publish(n.Inbox(Worker) + ".>")
	g.all = append(g.all, permission{n.Lookup(), true}, permission{n.SnapshotRequest(), true})
}

func (n Names) worker(g *grants) {
	g.api(n.Work(), look, read, consume, list)
	g.publish("$JS.ACK." + n.Work() + ".>")
	g.publish(n.subject("d", ">"), n.Lookup())
	g.api("KV_"+n.Values(), look, read, consume)
	g.publish("$KV." + n.Values() + ".>")
	g.pushed("KV_" + n.Values())
}

// Permissions returns the permissions of a user of NATS for a process with some roles, as they
// stand in the configuration of a NATS server.
func Permissions(n Names, roles ...Role) string {
	var publish, subscribe []string
	for _, p := range n.of(roles) {
		if p.subscribe {
			subscribe = append(subscribe, fmt.Sprintf("%q", p.subject))
		} else {
			publish = append(publish, fmt.Sprintf("%q", p.subject))
		}
	}
	list := func(subjects []string) string { return "\n    " + strings.Join(subjects, "\n    ") + "\n  " }
	return fmt.Sprintf("permissions {\n  publish { allow: [%s] }\n  subscribe { allow: [%s] }\n}\n", list(publish), list(subscribe))
}

// of returns the permissions of several roles.
func (n Names) of(roles []Role) (all []permission) {
	for _, role := range roles {
		all = append(all, n.permissions(role)...)
	}
	slices.SortFunc(all, func(a, b permission) int {
		if a.subscribe != b.subscribe {
			if a.subscribe {
				return 1
			}
			return -1
		}
		return strings.Compare(a.subject, b.subject)
	})
	return slices.Compact(all)
}

package meter

// choose chooses nodes so that the calls of the others have no cycle, in addition to those that are
// chosen already. edges holds the nodes that each node calls. The order is that of all nodes,
// callees first, if calls of chosen nodes do not count.
//
// It is best to choose few nodes, and those that are called less often than others. The smallest
// choice is too expensive to find, so Choose takes one node of each strongly connected part, that
// with the most calls, and looks for the parts of the rest. If that takes long, it takes the
// targets of all calls that lead back.
func choose(edges [][]int32, chosen []bool) (order []int) {
	all := len(edges)
	for _, to := range edges {
		all += len(to)
	}
	for effort := 0; ; effort += all {
		s := newSearch(edges, chosen)
		s.run()
		switch {
		case !s.cycles:
			return s.order
		case effort < mostEffort:
			s.chooseBusy()
		default:
			s.chooseBack()
		}
	}
}

// mostEffort bounds the nodes and calls that Choose visits.
const mostEffort = 1 << 22

// search finds the strongly connected parts by Tarjan's algorithm, which finds callees first. It
// does not call itself: a module may have a chain of a hundred thousand functions. It ignores the
// calls of chosen nodes.
type search struct {
	edges             [][]int32
	chosen            []bool
	number, low, left []int // of each node: when it was entered, and left
	part              []int // of each node, or 0: it is in no part with a cycle
	open              []bool
	stack             []int
	way               []visit
	order             []int // of the nodes, callees first
	count, parts      int
	cycles            bool
}

// visit is a node on the way from the root of the search.
type visit struct{ node, next int }

func newSearch(edges [][]int32, chosen []bool) *search {
	n := len(edges)
	return &search{
		edges: edges, chosen: chosen, number: make([]int, n), low: make([]int, n), left: make([]int, n), part: make([]int, n),
		open: make([]bool, n), order: make([]int, 0, n), parts: 1,
	}
}

func (s *search) run() {
	for root := range s.edges {
		if s.number[root] == 0 {
			s.way = append(s.way, visit{node: root})
		}
		for len(s.way) > 0 {
			v := &s.way[len(s.way)-1]
			if v.next == 0 {
				s.count++
				s.number[v.node], s.low[v.node], s.open[v.node] = s.count, s.count, true
				s.stack = append(s.stack, v.node)
			}
			if v.next < len(s.edges[v.node]) {
				v.next++
				s.follow(v.node, int(s.edges[v.node][v.next-1]))
				continue
			}
			s.leave(v.node)
		}
	}
}

// follow follows a call.
func (s *search) follow(from, to int) {
	switch {
	case s.chosen[to]:
	case to == from:
		s.part[to], s.cycles = -1, true
	case s.number[to] == 0:
		s.way = append(s.way, visit{node: to})
	case s.open[to]:
		s.low[from] = min(s.low[from], s.number[to])
	}
}

// leave ends the visit of a node. If it is the first one of a part, it takes the part from the
// stack.
func (s *search) leave(node int) {
	s.way = s.way[:len(s.way)-1]
	s.count++
	s.left[node] = s.count
	if len(s.way) > 0 {
		up := s.way[len(s.way)-1].node
		s.low[up] = min(s.low[up], s.low[node])
	}
	if s.low[node] != s.number[node] {
		return
	}
	at := len(s.stack) - 1
	for ; s.stack[at] != node; at-- {
	}
	cycle := len(s.stack)-at > 1
	for _, member := range s.stack[at:] {
		s.open[member] = false
		s.order = append(s.order, member)
		if cycle || s.part[member] < 0 {
			s.part[member], s.cycles = s.parts, true
		}
	}
	s.parts++
	s.stack = s.stack[:at]
}

// calls calls a function with each call within a part.
func (s *search) calls(each func(from, to int)) {
	for from, calls := range s.edges {
		for _, to := range calls {
			if p := s.part[from]; p > 0 && p == s.part[to] && !s.chosen[to] {
				each(from, int(to))
			}
		}
	}
}

// chooseBusy chooses the node of each part that calls and is called in most places.
func (s *search) chooseBusy() {
	in, out := make([]int, len(s.edges)), make([]int, len(s.edges))
	s.calls(func(from, to int) {
		out[from]++
		in[to]++
	})
	best := make([]int, s.parts)
	for node, p := range s.part {
		if score := in[node] * out[node]; score > 0 && (best[p] == 0 || score > in[best[p]-1]*out[best[p]-1]) {
			best[p] = node + 1
		}
	}
	for _, node := range best {
		if node > 0 {
			s.chosen[node-1] = true
		}
	}
}

// chooseBack chooses the targets of all calls that lead back.
func (s *search) chooseBack() {
	s.calls(func(from, to int) {
		if s.left[to] >= s.left[from] {
			s.chosen[to] = true
		}
	})
}

package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/rbac"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// rbacCommand prints the RBAC rules that a configuration needs.
func rbacCommand(made compile.Components) cli.Command {
	return cli.Command{
		Name:    "rbac",
		Summary: "Print the RBAC rules that a configuration needs, without a cluster",
		Description: `
It prints a ClusterRole, a Role for each namespace, and their bindings to a ServiceAccount. They grant exactly the rights
that the sources, the grants of kubernetes sinks and the router itself need.

The namespaces of a namespaceSelector are known in the cluster only: without -selected, the rules cover all namespaces.
Clusters let each account read the resources and schemas that they serve; for those that do not, -discovery adds the
rules.`,
		Examples: []cli.Example{
			{Line: "router rbac -namespace ops | kubectl apply -f -", Text: "for the ServiceAccount deltarouter in namespace ops"},
			{Line: "router rbac -o helm-values >rbac.yaml", Text: "the rules alone, as values of a Helm chart"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			r := &rbacPrinting{made: made}
			f.ConfigVar(&r.path, "the configuration")
			f.ChoiceVar(&r.output, "o", "yaml", []string{"yaml", "helm-values"}, "the format of the output")
			f.StringVar(&r.namespace, "namespace", "deltarouter", "`NAMESPACE` the namespace of the ServiceAccount")
			f.StringVar(&r.account, "service-account", "deltarouter", "`NAME` the ServiceAccount")
			f.StringsVar(&r.selected, "selected", "`NAMESPACE` a namespace that a namespaceSelector finds; the rules for them become Roles in these")
			f.BoolVar(&r.discovery, "discovery", false, "also print the rules for discovery and schemas")
			schemasVar(f, &r.schemas)
			cli.PolicyFlags(f, &r.made.Policy)
			return r.run
		},
	}
}

// rbacPrinting is a use of router rbac.
type rbacPrinting struct {
	path, schemas      string
	output             string
	namespace, account string
	selected           []string
	discovery          bool
	made               compile.Components
}

func (r *rbacPrinting) run(ctx context.Context, s cli.Streams, _ []string) error {
	if len(validation.IsDNS1123Subdomain(r.account)) > 0 {
		return cli.Mistakef("-service-account %q is not a valid name", r.account)
	}
	for _, namespace := range append([]string{r.namespace}, r.selected...) {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return cli.Mistakef("%q is not a valid namespace; -selected may be given several times", namespace)
		}
	}
	needs, err := rbac.File(ctx, r.path, r.schemas, r.namespace, r.made)
	if err != nil {
		return cli.Invalid(err)
	}
	if len(r.selected) > 0 && !slices.ContainsFunc(needs, func(n rbac.Need) bool { return n.Selected }) {
		return cli.Mistakef("-selected has no effect, because no grant has a namespaceSelector: leave it out")
	}
	if len(r.selected) > 0 {
		needs = rbac.Select(needs, r.selected)
	}
	var warnings config.Problems
	for _, n := range needs {
		if n.Selected {
			warnings = append(warnings, everywhere(n.Place))
		}
	}
	if len(warnings) > 0 {
		fmt.Fprintln(s.Err, warnings.Sorted().Quoted())
	}
	return r.print(s, needs)
}

// everywhere warns of rights in unknown namespaces.
func everywhere(p config.Problem) config.Problem {
	p.Warning = true
	p.Message = "its namespaceSelector finds namespaces in the cluster only, so the rules allow these writes in all namespaces; " +
		"name the namespaces with -selected, or write namespaces instead of namespaceSelector"
	return p
}

// print prints the rules in the chosen format, and those that an operator must decide about as a
// comment.
func (r *rbacPrinting) print(s cli.Streams, needs []rbac.Need) error {
	rules, err := r.format(rbac.RulesOf(rbac.Rights(needs, r.discovery)), "")
	if err != nil {
		return err
	}
	if r.output == "yaml" {
		cli.Printf(s.Out, "# The rights that %s needs. Print them again with router rbac after a change of the configuration.\n", cli.ConfigName(r.path))
	}
	fmt.Fprint(s.Out, rules)
	conditional := rbac.Conditional(needs)
	if len(conditional) == 0 {
		return nil
	}
	if rules, err = r.format(rbac.RulesOf(conditional), ":content"); err != nil {
		return err
	}
	const head = `
# For some content of the objects that the routes write, the API server requires more rights, with which the router can
# give others more than it has itself. Decide which it needs, and name the objects with resourceNames where possible.
`
	fmt.Fprint(s.Out, head)
	for _, reason := range rbac.Reasons(needs) {
		cli.Printf(s.Out, "# - %s\n", reason)
	}
	fmt.Fprint(s.Out, "#\n"+prefixLines("# ", rules))
	return nil
}

// format returns the rules in the chosen format. suffix belongs to the names of the roles.
func (r *rbacPrinting) format(rules rbac.Rules, suffix string) (string, error) {
	if r.output == "helm-values" {
		var out strings.Builder
		err := cli.Streams{Out: &out}.PrintYAML(map[string]any{"rbac": map[string]any{"clusterRules": rules.Cluster(), "rules": rules.Namespaced()}})
		return out.String(), err
	}
	name := strings.Join([]string{"deltarouter", r.namespace, r.account}, ":") + suffix
	return rbac.Manifests(rules, rbac.ServiceAccount(r.namespace, r.account), func([]rbac.Rule) string { return name })
}

func prefixLines(prefix, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(prefix + line)
	}
	return b.String()
}

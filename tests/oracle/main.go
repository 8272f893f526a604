// The oracle: what the plugins of the real kube-scheduler say of a pod and a cluster.
//
// It reads one case a line from standard input and writes one answer a line to standard output; both are JSON, and oracle.py
// holds their shapes. Mode "filter" asks each filter plugin by itself about each node, so that a refusal by one hides none by
// another. Mode "cycle" runs whole scheduling cycles for a list of pods, one after the other, with the default profile's
// filters and scores; of equally good nodes the first by name is taken.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// The default profile's filter plugins, in its order.
var filterNames = []string{
	"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions",
	"NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity",
}

type question struct {
	Mode       string                          `json:"mode"`
	Plugins    []string                        `json:"plugins"`
	Nodes      []*v1.Node                      `json:"nodes"`
	Pods       []*v1.Pod                       `json:"pods"`
	Wanted     []*v1.Pod                       `json:"wanted"`
	Namespaces []*v1.Namespace                 `json:"namespaces"`
	Services   []*v1.Service                   `json:"services"`
	Volumes    []*v1.PersistentVolume          `json:"persistentVolumes"`
	Claims     []*v1.PersistentVolumeClaim     `json:"persistentVolumeClaims"`
	Classes    []*storagev1.StorageClass       `json:"storageClasses"`
	CSINodes   []*storagev1.CSINode            `json:"csiNodes"`
	Drivers    []*storagev1.CSIDriver          `json:"csiDrivers"`
	Capacities []*storagev1.CSIStorageCapacity `json:"csiStorageCapacities"`
}

// A refusal: the status code's name and the plugin's own words.
type refusal struct {
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
}

type answer struct {
	Error string `json:"error,omitempty"`
	// For each wanted pod: plugin, node, refusal. Node "*" is a refusal of all nodes before any was looked at.
	Refused []map[string]map[string]refusal `json:"refused,omitempty"`
	// For each wanted pod the node it was placed on, "" where none would have it.
	Placed []string `json:"placed,omitempty"`
}

// The snapshot that the plugins look at: another one for each case.
type lister struct{ *schedulercache.Snapshot }

type oracle struct {
	current *lister
	factory informers.SharedInformerFactory
	handle  framework.Framework
	plugins map[string]fwk.Plugin
	indexed []indexed
}

type indexed struct {
	indexer cache.Indexer
	object  any
}

func newOracle(ctx context.Context) (*oracle, error) {
	metrics.Register()
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := &defaults.Profiles[0]
	client := fake.NewClientset()
	o := &oracle{
		current: &lister{schedulercache.NewEmptySnapshot()},
		factory: informers.NewSharedInformerFactory(client, 0),
		plugins: map[string]fwk.Plugin{},
	}
	registry := plugins.NewInTreeRegistry()
	o.handle, err = frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(o.factory),
		frameworkruntime.WithSnapshotSharedLister(o.current),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(o.factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithParallelism(1),
	)
	if err != nil {
		return nil, err
	}
	for _, name := range filterNames {
		if o.plugins[name], err = registry[name](ctx, argsOf(profile, name), o.handle); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return o, nil
}

func argsOf(profile *config.KubeSchedulerProfile, name string) runtime.Object {
	for _, each := range profile.PluginConfig {
		if each.Name == name {
			return each.Args
		}
	}
	return nil
}

// The informers are never started: what their stores hold is put there case by case.
func (o *oracle) load(q *question) error {
	for _, each := range o.indexed {
		if err := each.indexer.Delete(each.object); err != nil {
			return err
		}
	}
	o.indexed = o.indexed[:0]
	core, storage := o.factory.Core().V1(), o.factory.Storage().V1()
	var err error
	add := func(indexer cache.Indexer, object any) {
		if err == nil {
			err = indexer.Add(object)
		}
		o.indexed = append(o.indexed, indexed{indexer, object})
	}
	for _, each := range q.Nodes {
		add(core.Nodes().Informer().GetIndexer(), each)
	}
	for _, each := range q.Pods {
		add(core.Pods().Informer().GetIndexer(), each)
	}
	for _, each := range q.Namespaces {
		add(core.Namespaces().Informer().GetIndexer(), each)
	}
	for _, each := range q.Services {
		add(core.Services().Informer().GetIndexer(), each)
	}
	for _, each := range q.Volumes {
		add(core.PersistentVolumes().Informer().GetIndexer(), each)
	}
	for _, each := range q.Claims {
		add(core.PersistentVolumeClaims().Informer().GetIndexer(), each)
	}
	for _, each := range q.Classes {
		add(storage.StorageClasses().Informer().GetIndexer(), each)
	}
	for _, each := range q.CSINodes {
		add(storage.CSINodes().Informer().GetIndexer(), each)
	}
	for _, each := range q.Drivers {
		add(storage.CSIDrivers().Informer().GetIndexer(), each)
	}
	for _, each := range q.Capacities {
		add(storage.CSIStorageCapacities().Informer().GetIndexer(), each)
	}
	o.current.Snapshot = schedulercache.NewSnapshot(q.Pods, q.Nodes)
	return err
}

func (o *oracle) nodes() ([]fwk.NodeInfo, error) {
	found, err := o.current.NodeInfos().List()
	if err != nil {
		return nil, err
	}
	sorted := append([]fwk.NodeInfo(nil), found...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Node().Name < sorted[j].Node().Name })
	return sorted, nil
}

func refusalOf(status *fwk.Status) refusal {
	return refusal{Code: status.Code().String(), Reasons: status.Reasons()}
}

// One plugin's refusals of a pod by node.
func (o *oracle) ask(ctx context.Context, plugin fwk.Plugin, pod *v1.Pod, nodes []fwk.NodeInfo) (map[string]refusal, error) {
	refused := map[string]refusal{}
	state := framework.NewCycleState()
	asked := nodes
	if pre, ok := plugin.(fwk.PreFilterPlugin); ok {
		result, status := pre.PreFilter(ctx, state, pod, nodes)
		switch {
		case status.IsSkip():
			return refused, nil
		case !status.IsSuccess():
			refused["*"] = refusalOf(status)
			return refused, nil
		case !result.AllNodes():
			asked = nil
			for _, node := range nodes {
				if result.NodeNames.Has(node.Node().Name) {
					asked = append(asked, node)
				} else {
					refused[node.Node().Name] = refusal{Code: "PreFilter", Reasons: []string{"left out before filtering"}}
				}
			}
		}
	}
	filter, ok := plugin.(fwk.FilterPlugin)
	if !ok {
		return nil, fmt.Errorf("%s filters nothing", plugin.Name())
	}
	for _, node := range asked {
		if status := filter.Filter(ctx, state, pod, node); !status.IsSuccess() {
			refused[node.Node().Name] = refusalOf(status)
		}
	}
	return refused, nil
}

func (o *oracle) filter(ctx context.Context, q *question) (*answer, error) {
	nodes, err := o.nodes()
	if err != nil {
		return nil, err
	}
	names := q.Plugins
	if len(names) == 0 {
		names = filterNames
	}
	result := &answer{}
	for _, pod := range q.Wanted {
		of := map[string]map[string]refusal{}
		for _, name := range names {
			plugin, known := o.plugins[name]
			if !known {
				return nil, fmt.Errorf("no filter plugin is called %q", name)
			}
			refused, err := o.ask(ctx, plugin, pod, nodes)
			if err != nil {
				return nil, err
			}
			if len(refused) > 0 {
				of[name] = refused
			}
		}
		result.Refused = append(result.Refused, of)
	}
	return result, nil
}

func (o *oracle) cycle(ctx context.Context, q *question) (*answer, error) {
	result := &answer{}
	there := append([]*v1.Pod(nil), q.Pods...)
	for _, pod := range q.Wanted {
		name, err := o.place(ctx, pod)
		if err != nil {
			return nil, err
		}
		result.Placed = append(result.Placed, name)
		if name == "" {
			continue
		}
		bound := pod.DeepCopy()
		bound.Spec.NodeName = name
		there = append(there, bound)
		o.current.Snapshot = schedulercache.NewSnapshot(there, q.Nodes)
	}
	return result, nil
}

// The node that the default profile chooses for a pod, "" where none passes.
func (o *oracle) place(ctx context.Context, pod *v1.Pod) (string, error) {
	nodes, err := o.nodes()
	if err != nil {
		return "", err
	}
	state := framework.NewCycleState()
	result, status, _ := o.handle.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		if status.IsRejected() {
			return "", nil
		}
		return "", status.AsError()
	}
	var fit []fwk.NodeInfo
	for _, node := range nodes {
		if !result.AllNodes() && !result.NodeNames.Has(node.Node().Name) {
			continue
		}
		if status := o.handle.RunFilterPlugins(ctx, state, pod, node); status.IsSuccess() {
			fit = append(fit, node)
		} else if !status.IsRejected() {
			return "", status.AsError()
		}
	}
	if len(fit) == 0 {
		return "", nil
	}
	if len(fit) == 1 {
		return fit[0].Node().Name, nil
	}
	if status := o.handle.RunPreScorePlugins(ctx, state, pod, fit); !status.IsSuccess() {
		return "", status.AsError()
	}
	scores, status := o.handle.RunScorePlugins(ctx, state, pod, fit)
	if !status.IsSuccess() {
		return "", status.AsError()
	}
	best := scores[0]
	for _, each := range scores[1:] {
		if each.TotalScore > best.TotalScore || (each.TotalScore == best.TotalScore && each.Name < best.Name) {
			best = each
		}
	}
	return best.Name, nil
}

func (o *oracle) answer(ctx context.Context, line []byte) *answer {
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		return &answer{Error: err.Error()}
	}
	if err := o.load(&q); err != nil {
		return &answer{Error: err.Error()}
	}
	run := map[string]func(context.Context, *question) (*answer, error){"filter": o.filter, "cycle": o.cycle}[q.Mode]
	if run == nil {
		return &answer{Error: fmt.Sprintf("mode %q is neither filter nor cycle", q.Mode)}
	}
	result, err := run(ctx, &q)
	if err != nil {
		return &answer{Error: err.Error()}
	}
	return result
}

func main() {
	klog.SetOutput(os.Stderr)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o, err := newOracle(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriterSize(os.Stdout, 1<<20)
	encoder := json.NewEncoder(output)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(o.answer(ctx, line)); err != nil {
				os.Exit(1)
			}
			if lines.Buffered() == 0 {
				output.Flush()
			}
		}
		if err != nil {
			break
		}
	}
	output.Flush()
}

"""What `cachekeeper run` tells the processes of a job, by name. Nothing else is here: jobs import it."""

RUN = "CACHEKEEPER_RUN"
GUARD = "CACHEKEEPER_GUARD"
SUPERVISED = "CACHEKEEPER_SUPERVISED"
OF_A_RUN = (RUN, GUARD, SUPERVISED)
